"""The verbs as methods, blocking and async.

A verb is written once, in `ops`, as a function that returns an `Op`. One line here makes it two
methods. Their signatures, for type checkers and editors, are in the stub beside this file, which is
generated: `python -m tests.typing.stubs`.

Rejected: descriptors that are generic in the parameters, without a stub. mypy and pyright keep the
signatures, but report every type that holds such a class as incomplete, and editors show no text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rowlock.store.ops import bulk as _bulk
from rowlock.store.ops import claim as _claim
from rowlock.store.ops import hold as _hold
from rowlock.store.ops import limit_info as _limit_info
from rowlock.store.ops import limits as _limits
from rowlock.store.ops import look as _look
from rowlock.store.ops import manage as _manage
from rowlock.store.ops import recover as _recover
from rowlock.store.ops import schedule as _schedule
from rowlock.store.ops import settle as _settle
from rowlock.store.ops import stats as _stats
from rowlock.store.ops import why as _why
from rowlock.store.ops import workflow_info as _workflow_info
from rowlock.store.ops import workflow_manage as _workflow_manage
from rowlock.store.ops.settle import Settled
from rowlock.store.steps import Op


class Verb:
    """A method that runs an op, by the `_run` or `_arun` of its object.

    Args:
        op: Makes the op of one call.
        then: Called after the commit, with the op's result. It may raise. A method with it returns
            None.
        is_local: The first argument of `op` is the store's `LocalState`.
    """

    def __init__(
        self,
        op: Callable[..., Op[Any]],
        *,
        is_async: bool,
        then: Callable[[Any], None] | None = None,
        is_local: bool = False,
    ) -> None:
        self.op = op
        self.is_async = is_async
        self.then = then
        self.is_local = is_local
        self.__doc__ = op.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, owner: Any, kind: type) -> Any:
        if owner is None:
            return self
        op, then = self.op, self.then
        if self.is_local:
            op = partial(op, owner.local)

        def call(*args: Any, **named: Any) -> Any:
            answer = owner._run(op(*args, **named))
            return answer if then is None else then(answer)

        async def acall(*args: Any, **named: Any) -> Any:
            answer = await owner._arun(op(*args, **named))
            return answer if then is None else then(answer)

        method: Any = acall if self.is_async else call
        method.__name__, method.__doc__ = self.name, self.__doc__
        # So that inspect.signature() finds the parameters.
        method.__wrapped__ = op
        return method


def verbs(
    op: Callable[..., Op[Any]],
    *,
    then: Callable[[Any], None] | None = None,
    is_local: bool = False,
) -> tuple[Verb, Verb]:
    """The blocking and the async method of a verb."""
    return (
        Verb(op, is_async=False, then=then, is_local=is_local),
        Verb(op, is_async=True, then=then, is_local=is_local),
    )


_raise = Settled.raise_if_missed


class QueueVerbs:
    """What both an app and a store can do with the jobs, queues and workers of a database."""

    cancel, acancel = verbs(_manage.cancel)
    delete, adelete = verbs(_manage.delete)
    get, aget = verbs(_look.get)
    cancel_workflow, acancel_workflow = verbs(_workflow_manage.cancel_workflow)
    get_workflow, aget_workflow = verbs(_workflow_info.get_workflow)
    retry_workflow, aretry_workflow = verbs(_workflow_manage.retry_workflow)
    workflow_graph, aworkflow_graph = verbs(_workflow_info.workflow_graph)
    workflow_jobs, aworkflow_jobs = verbs(_workflow_info.workflow_jobs)
    workflows, aworkflows = verbs(_workflow_info.list_workflows)
    limit_keys, alimit_keys = verbs(_limit_info.limit_keys)
    limits, alimits = verbs(_limit_info.list_limits)
    pause, apause = verbs(_manage.pause)
    reroute, areroute = verbs(_manage.reroute)
    reschedule, areschedule = verbs(_manage.reschedule)
    resume, aresume = verbs(_manage.resume)
    run_now, arun_now = verbs(_manage.run_now)
    set_order, aset_order = verbs(_manage.set_order)
    stats, astats = verbs(_stats.stats)
    why, awhy = verbs(_why.why)
    workers, aworkers = verbs(_look.workers)


class StoreVerbs(QueueVerbs):
    """What only a store can do."""

    # For those who write their own worker loop.
    claim, aclaim = verbs(_claim.claim, is_local=True)
    heartbeat, aheartbeat = verbs(_hold.heartbeat)
    progress, aprogress = verbs(_hold.progress, then=_raise)
    log, alog = verbs(_hold.log, then=_raise)
    settle, asettle = verbs(_settle.settle_each, then=_raise, is_local=True)
    succeed, asucceed = verbs(_settle.succeed, then=_raise)
    fail, afail = verbs(_settle.fail, then=_raise, is_local=True)
    release, arelease = verbs(_settle.release, then=_raise)
    finish_cancelled, afinish_cancelled = verbs(_settle.finish_cancelled, then=_raise)
    crash, acrash = verbs(_settle.crash, then=_raise)
    announce, aannounce = verbs(_hold.announce)
    depart, adepart = verbs(_hold.depart)

    recover, arecover = verbs(_recover.recover)
    adopt_orphans, aadopt_orphans = verbs(_recover.adopt_orphans)
    release_worker, arelease_worker = verbs(_recover.release_worker)

    retry, aretry = verbs(_manage.retry)
    run_again, arun_again = verbs(_manage.run_again)
    retry_dead, aretry_dead = verbs(_bulk.retry_dead)
    prune, aprune = verbs(_manage.prune)
    list, alist = verbs(_look.list_jobs)
    read_log, aread_log = verbs(_hold.read_log)

    declare_limits, adeclare_limits = verbs(_limits.declare_limits)
    set_limit, aset_limit = verbs(_limits.set_limit)
    unset_limit, aunset_limit = verbs(_limits.unset_limit)
    pause_limit, apause_limit = verbs(_limits.pause_limit)
    resume_limit, aresume_limit = verbs(_limits.resume_limit)

    put_schedule, aput_schedule = verbs(_schedule.put_schedule)
    declare_schedules, adeclare_schedules = verbs(_schedule.declare_schedules)
    list_schedules, alist_schedules = verbs(_schedule.list_schedules)
    pause_schedule, apause_schedule = verbs(_schedule.pause_schedule)
    resume_schedule, aresume_schedule = verbs(_schedule.resume_schedule)
    run_schedule_now, arun_schedule_now = verbs(_schedule.run_schedule_now)
    delete_schedule, adelete_schedule = verbs(_schedule.delete_schedule)
    fire_due, afire_due = verbs(_schedule.fire_due)
