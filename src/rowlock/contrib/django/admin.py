"""The admin: the jobs, to look at, retry and cancel, and a link to the dashboard.

The jobs need no ASGI and no server of rowlock's: they are read on Django's own connection. Both
pages have the permissions of the dashboard.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path

from rowlock.contrib.django.models import Dashboard, Job
from rowlock.contrib.django.project import project_app
from rowlock.contrib.django.settings import moment
from rowlock.errors import InvalidTransition, NotFound, OptionInvalid
from rowlock.job import Job as StoredJob
from rowlock.job import JobState
from rowlock.store.ops.audit import Actor, Deed, audited
from rowlock.store.ops.manage import cancel, retry
from rowlock.store.steps import Op

if TYPE_CHECKING:
    _Admin: TypeAlias = admin.ModelAdmin[Dashboard]
    _JobAdmin: TypeAlias = admin.ModelAdmin[Job]
else:
    _Admin = _JobAdmin = admin.ModelAdmin

_PAGE: Final = 50
_FILTERS: Final = ("state", "kind", "queue", "tenant")
_ACTIONS: Final[dict[str, Callable[[str], Op[Any]]]] = {"cancel": cancel, "retry": retry}
# What can be done to a job that has ended so. All others can be cancelled.
_AFTERWARDS: Final = {
    JobState.SUCCEEDED: None,
    JobState.DEAD: "retry",
    JobState.CANCELLED: "retry",
}


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


class JobAdmin(_JobAdmin):
    """Lists jobs, shows one, and retries or cancels them."""

    def get_urls(self) -> list[Any]:
        """Return the list, and the page of a job."""
        views = self.admin_site
        return [
            path("", views.admin_view(self.changelist_view), name="rowlock_job_changelist"),
            path("<str:id>/", views.admin_view(self.job_view), name="rowlock_job_change"),
        ]

    def has_module_permission(self, request: Any) -> bool:
        """Return whether to list it on the admin's first page."""
        return self.has_view_permission(request)

    def has_view_permission(self, request: Any, obj: Any = None) -> bool:
        """Return whether the user may look."""
        return bool(request.user.has_perm("rowlock.view_dashboard"))

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        """Return whether the user may retry and cancel."""
        may_act = request.user.has_perm("rowlock.change_dashboard")
        return bool(may_act and self.has_view_permission(request))

    def has_add_permission(self, request: Any) -> bool:
        """Return False: jobs are enqueued by code."""
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        """Return False: jobs are removed when their retention expires."""
        return False

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        """Show a page of jobs, or act on those that are selected."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._act(request)
        chosen = {name: request.GET.get(name, "").strip() for name in _FILTERS}
        wanted: dict[str, Any] = {name: value or None for name, value in chosen.items()}
        try:
            page = project_app().list(limit=_PAGE, cursor=request.GET.get("cursor"), **wanted)
        except OptionInvalid as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(request.path)
        following = {name: value for name, value in chosen.items() if value}
        context = {
            **self.admin_site.each_context(request),
            "title": "Jobs",
            "jobs": [_listed(job) for job in page],
            "states": [state.value for state in JobState],
            "chosen": chosen,
            "next": page.next and urlencode({**following, "cursor": page.next}),
            "may_act": self.has_change_permission(request),
            "dashboard_url": _url(),
        }
        return TemplateResponse(request, "rowlock/job_list.html", context)

    def job_view(self, request: Any, id: str) -> Any:
        """Show a job: what it was enqueued with, and what became of it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        app = project_app()
        try:
            job = app.get(id)
        except OptionInvalid:
            job = None
        if job is None:
            raise Http404(f"there is no job {id!r}, or its retention has expired")
        context = {
            **self.admin_site.each_context(request),
            "title": job.kind,
            "job": job,
            "rows": [("State", job.state.value), ("Why", app.why(job.id).text), *_rows(job)],
            "texts": _texts(job),
            "action": _AFTERWARDS.get(job.state, "cancel"),
            "may_act": self.has_change_permission(request),
        }
        return TemplateResponse(request, "rowlock/job.html", context)

    def _act(self, request: Any) -> Any:
        action, ids = request.POST.get("action"), request.POST.getlist("id")
        if not self.has_change_permission(request):
            raise PermissionDenied
        if action not in _ACTIONS or not ids:
            messages.warning(request, "Select jobs and an action. Nothing was changed.")
            return HttpResponseRedirect(request.get_full_path())
        done = 0
        for id in ids[:_PAGE]:
            try:
                self._do(request, action, id)
                done += 1
            except (InvalidTransition, NotFound, OptionInvalid) as error:
                messages.warning(request, f"{id}: {error}")
        if done:
            past = {"cancel": "cancelled", "retry": "retried"}[action]
            messages.success(request, f"{done} {'job was' if done == 1 else 'jobs were'} {past}.")
        return HttpResponseRedirect(request.get_full_path())

    def _do(self, request: Any, action: str, id: str) -> None:
        actor = Actor(name=request.user.get_username())
        deed = Deed(actor, f"job.{action}", id, request.META.get("REMOTE_ADDR"))
        project_app().store.run(audited(_ACTIONS[action](id), deed))


def _listed(job: StoredJob) -> dict[str, Any]:
    return {
        "id": job.id,
        "kind": job.kind,
        "state": job.state.value,
        "queue": job.queue,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "created": moment(job.created_at),
        "last_error": job.last_error,
    }


def _rows(job: StoredJob) -> list[tuple[str, object]]:
    """Return what is known of a job, by label, without what it does not have."""
    rows = [
        ("Id", job.id),
        ("Queue", job.queue),
        ("Priority", job.priority),
        ("Attempt", f"{job.attempt} of {job.max_attempts}"),
        ("Created", moment(job.created_at)),
        ("Due", moment(job.run_at)),
        ("Started", moment(job.started_at)),
        ("Finished", moment(job.finished_at)),
        ("Worker", job.worker),
        ("Key", job.key),
        ("Tenant", job.tenant),
        ("Tags", ", ".join(job.tags)),
    ]
    return [(label, value) for label, value in rows if value not in (None, "")]


def _texts(job: StoredJob) -> list[tuple[str, str]]:
    """Return the payload, the result and the errors of a job, the newest first, with titles."""
    texts = [("Arguments", _shown(job.payload))]
    if job.state is JobState.SUCCEEDED:
        texts.append(("Result", _shown(job.result)))
    errors = [(str(error), error.traceback or "") for error in reversed(job.errors)]
    return texts + errors


def _shown(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _url() -> str | None:
    raw = getattr(settings, "ROWLOCK", {})
    url: str | None = raw.get("DASHBOARD_URL") if isinstance(raw, dict) else None
    return url


admin.site.register(Dashboard, DashboardAdmin)
admin.site.register(Job, JobAdmin)
