from proj.celery import app


@app.task
def found():
    return "found"
