"""A link to the dashboard in the admin, where `ROWLOCK["DASHBOARD_URL"]` says where that is."""

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
    """Nothing to list, add or change here: its only page leads to the dashboard."""

    def get_urls(self) -> list[Any]:
        """The one page."""
        view = self.admin_site.admin_view(self.changelist_view)
        return [path("", view, name="rowlock_dashboard_changelist")]

    def has_module_permission(self, request: Any) -> bool:
        """Whether the link is shown."""
        return _url() is not None and bool(super().has_module_permission(request))

    def has_add_permission(self, request: Any) -> bool:
        """Nothing can be added."""
        return False

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        """Go to the dashboard."""
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
