"""All benchmarks of this package, one after the other."""

from benchmarks import engine

engine.main()
