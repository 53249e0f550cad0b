"""Shared tasks before the app, whose tasks run in the context of a Flask application."""

from celery import Celery, Task, shared_task
from flask import Flask, current_app


@shared_task(ignore_result=False)
def name_of_app() -> str:
    return current_app.name


def celery_of(flask: Flask) -> Celery:
    class FlaskTask(Task):
        def __call__(self, *args: object, **kwargs: object) -> object:
            with flask.app_context():
                return self.run(*args, **kwargs)

    made = Celery(flask.name, task_cls=FlaskTask)
    made.config_from_object(flask.config["CELERY"])
    made.set_default()
    flask.extensions["celery"] = made
    return made


flask = Flask("shop")
flask.config.from_mapping(
    CELERY={
        "broker_url": "redis://localhost",
        "result_backend": "redis://",
        "task_ignore_result": True,
    }
)
app = celery_of(flask)
