"""All of a Flask application's configuration in Celery's."""

from celery import Celery
from flask import Flask

flask = Flask("shop")
flask.config["CELERY_BROKER_URL"] = "redis://localhost:6379/0"
flask.config["CELERY_RESULT_BACKEND"] = "redis://localhost:6379/0"
app = Celery(flask.name, broker=flask.config["CELERY_BROKER_URL"])
app.conf.update(flask.config)


@app.task(bind=True)
def long(self):
    self.update_state(state="PROGRESS", meta={"current": 1, "total": 10, "status": "begun"})
    return {"status": "done"}
