"""The shop as an ASGI application, with the dashboard of its jobs at /jobs/ for its staff."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_of_shop.settings")
site = get_asgi_application()

from rowlock.contrib.django.asgi import with_dashboard  # noqa: E402  # Django must be set up first

application = with_dashboard(site, at="/jobs/")
