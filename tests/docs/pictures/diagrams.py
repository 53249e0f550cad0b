"""The diagrams of the documentation. Names and numbers in them come from the code."""

from __future__ import annotations

from rowlock import config
from rowlock.job import JobState
from tests.docs.pictures.drawing import Drawing

STYLES = {
    JobState.WAITING: "plain",
    JobState.SCHEDULED: "plain",
    JobState.READY: "blue",
    JobState.RUNNING: "blue",
    JobState.RETRYING: "amber",
    JobState.SUCCEEDED: "green",
    JobState.DEAD: "red",
    JobState.CANCELLED: "plain",
}
PLACES = {
    JobState.WAITING: (176, 46),
    JobState.SCHEDULED: (176, 246),
    JobState.READY: (392, 146),
    JobState.RUNNING: (624, 146),
    JobState.RETRYING: (506, 246),
    JobState.SUCCEEDED: (866, 46),
    JobState.DEAD: (866, 146),
    JobState.CANCELLED: (866, 246),
}


def job_states() -> str:
    """The states of a job, and what moves it from one to the next."""
    picture = Drawing(1000, 380, "The states of a job and what moves it from one to the next")
    picture.rect(20, 146, 100, 40, "plain")
    picture.text(70, 171, "enqueue", "code", anchor="middle")
    for state, (x, y) in PLACES.items():
        picture.state(x, y, state.value, STYLES[state])

    picture.arrow((120, 166), (392, 166))
    picture.text(250, 158, "by default", "small", anchor="middle")
    picture.arrow((70, 146), (70, 66), (176, 66))
    picture.text(78, 38, "after other jobs", "small")
    picture.arrow((70, 186), (70, 266), (176, 266))
    picture.text(78, 300, "with a delay", "small")
    picture.arrow((286, 66), (424, 66), (424, 146))
    picture.text(296, 58, "the others succeeded", "small")
    picture.arrow((286, 266), (424, 266), (424, 186))
    picture.text(296, 258, "its time has come", "small")

    picture.arrow((502, 166), (624, 166))
    picture.text(563, 158, "a worker claims", "small", anchor="middle")
    picture.arrow((652, 146), (652, 100), (470, 100), (470, 146))
    picture.text(561, 92, "the worker crashed or stopped", "small", anchor="middle")
    picture.arrow((652, 186), (652, 266), (616, 266))
    picture.text(644, 222, "it fails", "small", anchor="end")
    picture.arrow((506, 266), (470, 266), (470, 186))
    picture.text(478, 222, "after a pause", "small")

    picture.arrow((708, 146), (708, 66), (866, 66))
    picture.text(720, 58, "it returns", "small")
    picture.arrow((734, 166), (866, 166))
    picture.text(742, 158, "no attempt is left", "small")
    picture.arrow((708, 186), (708, 266), (866, 266))
    picture.text(720, 258, "it is cancelled", "small")

    picture.rect(854, 134, 134, 164, "frame")
    picture.arrow((921, 298), (921, 336), (447, 336), (447, 186), style="dashed")
    picture.text(684, 328, "you retry it", "small", anchor="middle")
    picture.text(
        20, 360, "You can cancel a job in any state before it has ended, not only a running one.",
        "small",
    )  # fmt: skip
    return picture.render()


def parts() -> str:
    """The processes of an installation, and what each does with the database."""
    picture = Drawing(1000, 520, "Your app, the database, a worker with children, the server")
    picture.box(
        24, 60, 220, "Your application",
        "web processes, scripts, shells",
        "it only writes rows: no broker,", "no connection to a worker",
        style="green",
    )  # fmt: skip
    picture.cylinder(400, 76, 180, 260, "amber")
    picture.text(490, 118, "Your database", "title", anchor="middle")
    for number, line in enumerate(
        ("a SQLite file", "or PostgreSQL", "",
         "jobs, results, errors,", "schedules, limits,", "history, workers")
    ):  # fmt: skip
        picture.text(490, 146 + 20 * number, line, "small", anchor="middle")
    picture.arrow((244, 96), (400, 96))
    picture.text(322, 88, "enqueue,", "small", anchor="middle")
    picture.text(322, 114, "in your transaction", "small", anchor="middle")

    picture.rect(690, 24, 286, 316, "frame")
    picture.text(704, 48, "rowlock worker", "code")
    picture.text(836, 48, "as many as you like", "small")
    picture.box(
        708, 62, 250, "Supervisor",
        "sends heartbeats, restarts children,", "runs none of your code",
        style="blue",
    )  # fmt: skip
    picture.box(
        708, 160, 250, "Child process 0",
        "runs your functions in slots: on the", "loop, in threads, in own processes", style="blue",
    )  # fmt: skip
    picture.text(720, 246, "One child also fires the schedules,", "small")
    picture.text(720, 262, "recovers jobs and removes old ones.", "small")
    picture.box(708, 280, 250, "Child process 1", style="blue")
    picture.arrow((708, 100), (580, 100))
    picture.text(644, 92, "heartbeats", "small", anchor="middle")
    picture.arrow((708, 196), (580, 196), both=True)
    picture.text(640, 188, "claim,", "small", anchor="middle")
    picture.text(640, 214, "save results", "small", anchor="middle")
    picture.arrow((708, 297), (580, 297), both=True)

    picture.rect(370, 392, 240, 104, "frame")
    picture.text(384, 416, "rowlock serve", "code")
    picture.text(504, 416, "optional", "small")
    picture.text(384, 440, "HTTP API, dashboard, metrics,", "small")
    picture.text(384, 458, "events; no state of its own,", "small")
    picture.text(384, 476, "or mounted in your web app", "small")
    picture.arrow((490, 392), (490, 350), both=True)
    picture.box(
        24, 392, 220, "You",
        "the dashboard in a browser,", "Prometheus and Grafana",
        style="green",
    )  # fmt: skip
    picture.arrow((244, 428), (370, 428), both=True)
    picture.box(
        718, 392, 240, "Other languages",
        "workers in Node, Go or a shell,", "with leases over HTTP",
        style="green",
    )  # fmt: skip
    picture.arrow((718, 428), (610, 428), both=True)
    picture.box(
        24, 220, 220, "The command line",
        "rowlock jobs, dead, top, doctor", "works on the database itself", style="green",
    )  # fmt: skip
    picture.arrow((244, 256), (400, 256), both=True)
    return picture.render()


def crash() -> str:
    """A worker is killed, its lease expires, and another worker runs the job."""
    lease = round(config.LEASE_SECONDS_DEFAULT)
    beat = lease // 3
    killed = 2 * beat + 4
    expires = 2 * beat + lease
    again = expires + round(2 * config.SWEEP_SECONDS)
    done = again + 14
    left, scale = 130, 11.0

    def at(second: float) -> float:
        return left + scale * second

    picture = Drawing(1000, 400, "A killed worker: its lease expires, another runs the job")
    for second in range(0, done + 6, beat):
        picture.line((at(second), 40), (at(second), 316), "guide")
        picture.text(at(second), 32, f"{second} s", "small", anchor="middle")
    for y, name, more in (
        (70, "Worker A", ""), (166, "The job", "in the database"), (276, "Worker B", ""),
    ):  # fmt: skip
        picture.text(20, y + 21, name, "title")
        picture.text(20, y + 38, more, "small")

    picture.rect(at(0), 70, scale * killed, 34, "blue")
    picture.text(at(0) + 10, 92, "runs it, token 1", "code")
    for number, second in enumerate((beat, 2 * beat)):
        picture.arrow((at(second), 104), (at(second), 166))
        picture.text(at(second) + 6, 130 + 16 * number, "heartbeat", "small halo")
    picture.line((at(killed) - 8, 79), (at(killed) + 8, 95), "mark")
    picture.line((at(killed) - 8, 95), (at(killed) + 8, 79), "mark")
    picture.text(at(killed) + 16, 92, "kill -9, or the power fails", "code halo")

    picture.rect(at(0), 166, scale * again, 34, "amber")
    picture.text(at(0) + 10, 188, "running, token 1", "code")
    picture.arrow((at(2 * beat), 218), (at(expires), 218), both=True)
    picture.text(
        at(2 * beat) + 10, 236, f"the lease: {lease} s from the last heartbeat", "small halo"
    )
    picture.text(at(expires) + 4, 236, "expired", "small halo")
    picture.rect(at(again), 166, scale * (done - again), 34, "amber")
    picture.text(at(again) + 10, 188, "running, token 2", "code")
    picture.rect(at(done), 166, 980 - at(done), 34, "green")
    picture.text(at(done) + 8, 188, "succeeded", "code")

    picture.arrow((at(again), 200), (at(again), 276))
    picture.rect(at(again), 276, scale * (done - again), 34, "blue")
    picture.text(at(again) + 10, 298, "runs it, token 2", "code")
    picture.arrow((at(done), 276), (at(done), 200))
    picture.text(at(again) - 8, 298, "sees it, and claims the job", "small halo", anchor="end")

    picture.text(
        20, 350, "If only a child process dies, its supervisor gives the job back at once.",
        "small",
    )  # fmt: skip
    picture.text(
        20, 372, "If worker A was frozen and wakes up now, its write names token 1 and is refused"
        " (LeaseLost). The result of worker B stays.", "small",
    )  # fmt: skip
    return picture.render()


DIAGRAMS = {"job-states.svg": job_states, "parts.svg": parts, "crash.svg": crash}
