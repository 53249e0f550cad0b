"""Settings of the shop: SQLite, or PostgreSQL where SHOP_POSTGRES is a URL.

Django 6 has tasks of its own; for Django 5.2 they come from the package django-tasks.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = "only an example"
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "testserver"]
ROOT_URLCONF = "site_of_shop.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "rowlock.contrib.django",
    "shop",
]
if find_spec("django.tasks") is None:
    INSTALLED_APPS.append("django_tasks")

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

_postgres = urlsplit(os.environ.get("SHOP_POSTGRES", ""))
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _postgres.path[1:],
        "HOST": _postgres.hostname,
        "PORT": _postgres.port,
        "USER": _postgres.username,
        "PASSWORD": _postgres.password or "",
    }
    if _postgres.path
    else {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_FILE", BASE_DIR / "shop.sqlite3"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
    },
}

TASKS = {
    "default": {
        "BACKEND": "rowlock.contrib.django.RowlockBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"max_attempts": 3, "retry": "exponential"},
    }
}
ROWLOCK = {"DATABASE": "default", "DASHBOARD_URL": "/jobs/"}
