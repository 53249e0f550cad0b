import os

SECRET_KEY = "only for tests"
INSTALLED_APPS = ["django.contrib.contenttypes", "shop.apps.ShopConfig"]
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["SHOP_FILE"]}}

CELERY_BROKER_URL = "redis://:secret@localhost:6379/0"
CELERY_RESULT_BACKEND = "django-db"
CELERY_ACCEPT_CONTENT = ["application/json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_RESULT_SERIALIZER = "json"
CELERY_TIMEZONE = "Europe/Berlin"
CELERY_TASK_TIME_LIMIT = 300
CELERY_TASK_SOFT_TIME_LIMIT = 240
CELERY_TASK_ROUTES = {
    "shop.tasks.report": {"queue": "reports"},
    "shop.orders.*": {"queue": "orders", "priority": 5},
}
CELERY_IMPORTS = ("shop.orders",)
CELERY_WORKER_CONCURRENCY = 4
CELERY_TASK_ALWAYS_EAGER = False
