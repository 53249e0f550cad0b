"""Canvas inside functions."""

from celery import Celery, chain, chord, group, signature
from celery.canvas import Signature
from celery.result import GroupResult

app = Celery("shop", broker="redis://")


@app.task
def add(x, y):
    return x + y


@app.task
def sums(pairs):
    parts = group(add.s(*pair) for pair in pairs)
    whole = chord(parts, add.si(1, 1))
    return chain(whole, add.s(2)), GroupResult, signature("a"), isinstance(parts, Signature)
