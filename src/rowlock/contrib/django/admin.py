"""A link to the dashboard in the admin, if `ROWLOCK["DASHBOARD_URL"]` is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponseRedirect
from django.urls import path

from rowlock.contrib.django.models import Dashboard

if TYPE_CHECKING:
    _Admin: TypeAlias = admin.ModelAdmin[Dashboard]
else:
    _Admin = admin.ModelAdmin


class DashboardAdmin(_Admin):
    """Lists nothing: its only page redirects to the dashboard."""

    def get_urls(self) -> list[Any]:
        """Return the only page."""
        view = self.admin_site.admin_view(self.changelist_view)
        return [path("", view, name="rowlock_dashboard_changelist")]

    def has_module_permission(self, request: Any) -> bool:
        """Return whether to show the link."""
        return _url() is not None and bool(super().has_module_permission(request))

    def has_add_permission(self, request: Any) -> bool:
        """Return False: nothing can be added."""
        return False

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        """Redirect to the dashboard."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        url = _url()
        if url is None:
            raise Http404("ROWLOCK['DASHBOARD_URL'] is not set")
        return HttpResponseRedirect(url)


def _url() -> str | None:
    raw = getattr(settings, "ROWLOCK", {})
    url: str | None = raw.get("DASHBOARD_URL") if isinstance(raw, dict) else None
    return url


admin.site.register(Dashboard, DashboardAdmin)
