"""A class of its own for the app, with a method where there is a signal now."""

import datetime

import celery


class ObservedCelery(celery.Celery):
    def on_configure(self):
        self.is_observed = True


app = ObservedCelery("shop")
app.conf.update(
    broker_url=["redis://one", "redis://two"],
    timezone=datetime.UTC,
    accept_content=["json", "msgpack"],
    worker_disable_rate_limits=True,
    task_annotations={"derived.add": {"rate_limit": "100/s"}},
    broker_use_ssl=None,
)


@app.task(name="derived.add", rate_limit="5/m")
def add(x, y):
    return x + y
