"""The app as `manage.py rowlock` runs it: `rowlock --app rowlock.contrib.django.worker:app worker`.

Importing this module sets up Django, if needed, and imports the modules with tasks.
"""

from __future__ import annotations

import django
from django.apps import apps

from rowlock.app import App
from rowlock.contrib.django.project import discover, project_app

if not apps.ready:
    django.setup()
discover()

app: App = project_app().on_own_connections()
