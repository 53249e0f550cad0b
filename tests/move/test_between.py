"""What somebody does while a move is between two of its steps, or after it was killed there."""

from __future__ import annotations

from pathlib import Path

import pytest

import rowlock
from rowlock import config
from rowlock.errors import OptionInvalid
from rowlock.ids import new_id
from rowlock.job import CancelOutcome, JobState
from rowlock.move import Mover
from rowlock.store.ops.schedule import pause_schedule
from rowlock.store.ops.tokens import find_token, new_token, revoke_token
from tests.move.killing import Stopped, kill, stop_at
from tests.store.triggers import allow, refuse

pytestmark = pytest.mark.parametrize("urls", ["sqlite-postgres", "postgres-sqlite"], indirect=True)

Apps = tuple[rowlock.App, rowlock.App]


@pytest.mark.parametrize("given", [False, True])
def test_a_job_that_is_retried_when_its_end_is_known_there_is_not_lost(apps: Apps, given: bool):
    """The target remembers its id from before; it is the same job, later."""
    old, new = apps
    id = new_id() if given else None
    job = old.enqueue("failing", key="k", key_hold=3600, id=id)
    old.drain()
    kill(old, new, at="freeze_schedules")

    old.retry(job.id)
    Mover(old.store, new.store).run()

    arrived = new.get(job.id)
    assert arrived is not None and JobState.READY is arrived.state
    assert new.drain() == 1


def test_a_resend_whose_job_is_only_remembered_is_not_taken_for_a_retry(
    apps: Apps, monkeypatch: pytest.MonkeyPatch
):
    """However often it was held on the way."""
    old, new = apps
    monkeypatch.setattr(config, "ID_REMEMBERED_SECONDS", 0)
    id = new_id()
    old.enqueue("logging", {"n": 1}, id=id, keep=0)
    Mover(old.store, new.store).run()
    assert new.drain() == 1

    old.enqueue("logging", {"n": 1}, id=id, keep=0)
    for _ in range(5):
        kill(old, new, at="put", in_target=True)
        assert Mover(old.store, new.store).give_back() == 1
    Mover(old.store, new.store).run()

    assert new.drain() == 0


def test_what_became_of_a_job_in_the_source_is_what_arrives(apps: Apps):
    """Its copy was made when it was dead; then it was retried there, and it succeeded."""
    old, new = apps
    job = old.enqueue("sometimes")
    old.drain()
    kill(old, new, at="drop_ended")
    assert [each.state for each in new.list() if each.id == job.id] == [JobState.DEAD]

    old.retry(job.id, payload={"fails": False})
    assert old.drain() == 1
    Mover(old.store, new.store).run()

    assert [each.state for each in new.list()] == [JobState.SUCCEEDED]
    assert list(old.list()) == []


@pytest.mark.parametrize("keep", [0, 60])
def test_what_goes_on_in_the_target_is_not_ended_by_an_old_copy(apps: Apps, keep: int):
    """It was retried there before the source had let go of it."""
    old, new = apps
    job = old.enqueue("sometimes", keep=keep, max_attempts=1)
    old.drain()
    kill(old, new, at="drop_ended")
    new.retry(job.id, payload={"fails": False})

    if not keep:
        assert new.drain() == 1
    Mover(old.store, new.store).run()

    assert new.drain() == (0 if not keep else 1)
    assert [each.state for each in new.list()] == [JobState.SUCCEEDED] * (keep > 0)


def test_a_cancel_is_not_lost_with_the_mover(apps: Apps):
    """Asked for while the job was in both: it is passed on before the source forgets it."""
    old, new = apps
    job = old.enqueue("logging", {"n": 1})
    kill(old, new, at="gone")
    assert CancelOutcome.PENDING_ON_WORKER is old.cancel(job.id).outcome

    kill(old, new, at="cancel", in_target=True)
    Mover(old.store, new.store).run()

    assert [each.state for each in new.list()] == [JobState.CANCELLED]


def test_a_cancelled_job_that_is_given_back_does_not_run(apps: Apps):
    """It ends in the source, as one does whose worker gives it back."""
    old, new = apps
    job = old.enqueue("logging", {"n": 1})
    other = old.enqueue("logging", {"n": 2})
    kill(old, new, at="put", in_target=True)
    old.cancel(job.id)

    assert Mover(old.store, new.store).give_back() == 2

    states = {each.id: each.state for each in old.list()}
    assert states == {job.id: JobState.CANCELLED, other.id: JobState.READY}


def test_a_schedule_that_has_arrived_is_not_given_back_too(apps: Apps):
    """It would fire in both."""
    old, new = apps
    old.schedule("daily", "logging", cron="0 3 * * *")
    kill(old, new, at="drop")
    old.schedule("hourly", "logging", cron="0 * * * *")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(new.store, "run", stop_at("add", 1, new.store.run))
        with pytest.raises(Stopped):
            Mover(old.store, new.store).run()

    assert Mover(old.store, new.store).give_back() == 1

    assert [each.name for each in old.store.list_schedules()] == ["hourly"]
    assert [each.name for each in new.store.list_schedules()] == ["daily"]


def test_a_token_that_is_revoked_during_the_move_is_revoked_there(apps: Apps):
    """Whoever follows for days must not leave a door open."""
    old, new = apps
    made = new_token(name="ci", scopes=["read"])
    old.store.run(made.add())
    kill(old, new, at="freeze_schedules")
    assert None is not new.store.run(find_token(made.secret))

    old.store.run(revoke_token(made.secret.id))
    Mover(old.store, new.store).run()

    assert None is new.store.run(find_token(made.secret))


def test_the_job_of_a_living_worker_is_not_taken_at_first_sight(apps: Apps):
    """Nobody could beat while the database was away: whoever comes first is not the mover."""
    old, new = apps
    old.enqueue("logging", {"n": 1})
    (lease,) = old.store.claim(worker="w", queues=["default"], lease=0.001)
    beats = []

    def rest(seconds: float) -> None:
        if not beats:
            beats.append(old.store.heartbeat([lease], lease=60))
            old.store.succeed([lease], [7])

    Mover(old.store, new.store, rest=rest).run()

    assert [each.state for each in new.list()] == [JobState.SUCCEEDED]


def test_the_job_of_a_dead_worker_is_taken(apps: Apps, monkeypatch: pytest.MonkeyPatch):
    """When its lease was seen expired twice."""
    monkeypatch.setattr(config, "SWEEP_SECONDS", 0.1)
    old, new = apps
    old.enqueue("logging", {"n": 1})
    old.store.claim(worker="w", queues=["default"], lease=0.001)

    Mover(old.store, new.store).run()

    assert [each.state for each in new.list()] == [JobState.READY]


@pytest.mark.owner("puts a trigger on our table")
def test_a_lost_job_that_the_source_cannot_bury_holds_up_no_other(
    apps: Apps, monkeypatch: pytest.MonkeyPatch
):
    """The other lost job is moved; this one too, as soon as the source takes its end."""
    monkeypatch.setattr(config, "SWEEP_SECONDS", 0.1)
    monkeypatch.setattr(config, "SWEEP_REFUSED_SECONDS", 0.5)
    old, new = apps
    stuck = old.enqueue("logging", {"n": 1}, max_attempts=1)
    lost = old.enqueue("logging", {"n": 2}, max_attempts=1)
    old.store.claim(worker="w", queues=["default"], lease=0.001, limit=2)
    refuse(old.url, table="finished", when=f"NEW.id = '{stuck.id}'")
    alone: list[list[str]] = []

    def rest(seconds: float) -> None:
        moved = [each.id for each in new.list()]
        if moved and not alone:
            alone.append(moved)
            allow(old.url, table="finished")

    Mover(old.store, new.store, rest=rest).run()

    assert alone == [[lost.id]]
    assert {each.id: each.state for each in new.list()} == dict.fromkeys(
        [stuck.id, lost.id], JobState.DEAD
    )


@pytest.mark.parametrize("gives_back", [False, True])
def test_what_is_on_its_way_goes_to_no_other_database(apps: Apps, tmp_path: Path, gives_back: bool):
    """The other can't know whether it has arrived: with a wrong URL it would be run twice."""
    old, new = apps
    job = old.enqueue("logging", {"n": 1})
    kill(old, new, at="gone")

    with rowlock.App(f"sqlite:///{tmp_path / 'wrong.db'}") as wrong:
        for target in (wrong, old) if gives_back else (wrong,):
            mover = Mover(old.store, target.store)
            with pytest.raises(OptionInvalid, match="target: is "):
                mover.give_back() if gives_back else mover.run()
        assert list(wrong.list()) == []

    assert old.drain() == 0
    Mover(old.store, new.store).run()
    assert [each.id for each in new.list()] == [job.id]


@pytest.mark.parametrize("has_ended", [False, True])
def test_an_enqueue_that_is_sent_again_to_the_source_is_no_second_job(apps: Apps, has_ended: bool):
    """Also where a worker of the source would be faster than the mover."""
    old, new = apps
    id = new_id()
    old.enqueue("logging", {"n": 1}, id=id, key="k")
    runs = old.drain() if has_ended else 0
    Mover(old.store, new.store).run()

    again = old.enqueue("logging", {"n": 1}, id=id, key="k")
    other = old.enqueue("logging", {"n": 2}, key="k")

    assert (again.id, again.created, other.created) == (id, False, True)
    assert runs + old.drain() + new.drain() == 2


def test_what_has_moved_can_be_moved_back(apps: Apps):
    """Though it is remembered where it was."""
    old, new = apps
    ids = [old.enqueue("logging", {"n": 1}, id=id).id for id in (new_id(), None)]

    Mover(old.store, new.store).run()
    Mover(new.store, old.store).run()
    Mover(old.store, new.store).run()

    assert (old.drain(), new.drain()) == (0, 2)
    assert sorted(ids) == sorted(each.id for each in new.list())


def test_a_job_that_was_cancelled_before_it_arrives_is_not_run(apps: Apps):
    """No worker of the target can have it, though the mover dies before it can say more."""
    old, new = apps
    job = old.enqueue("logging", {"n": 1})
    kill(old, new, at="put", in_target=True)
    old.cancel(job.id)
    kill(old, new, at="gone")

    assert new.drain() == 0
    Mover(old.store, new.store).run()
    assert [each.state for each in new.list()] == [JobState.CANCELLED]


def test_a_paused_schedule_is_paused_there(apps: Apps):
    """Also where the same code has declared it already."""
    old, new = apps
    for app in apps:
        app.schedule("daily", "logging", cron="0 3 * * *")
    old.store.run(pause_schedule("daily"))

    Mover(old.store, new.store).run()

    assert [each.is_paused for each in new.store.list_schedules()] == [True]
