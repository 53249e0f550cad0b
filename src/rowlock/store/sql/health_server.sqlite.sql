-- The library's version, and the clock.
SELECT sqlite_version(), {now}
