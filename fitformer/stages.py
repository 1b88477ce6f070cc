"""Bookkeeping of a run folder: which stage is finished with which inputs, what may be skipped, what must be refused.

A stage's folder holds ``started.json`` from its first moment and ``done.json`` once it is finished. Both carry the
stage's inputs: its settings by name and the identities of the stages it builds on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fitformer.cost.power import Meter
from fitformer.errors import InputError, NotPossibleError, nearest
from fitformer.progress import duration, say
from fitformer.rundir import disk_error, read_json, write_json

STAGES = ("prepare", "supernet", "measure", "search", "train", "compress", "export", "report")
DONE, STARTED = "done.json", "started.json"


@dataclass(frozen=True)
class Stage:
    """One stage of a run; ``part`` is the device or target for stages that have one per device or target.

    ``defaults`` are the default settings by section: what a stage did with settings that its version did not know yet.
    ``gpus`` is how many are at work, for the account of energy.
    """

    run: Path
    name: str
    part: str = ""
    defaults: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    gpus: int = field(default=0, compare=False, repr=False)

    @property
    def title(self) -> str:
        """``search cpu@50%``."""
        return f"{self.name} {self.part}".strip()

    @property
    def folder(self) -> Path:
        """Where the stage keeps its files."""
        return self.run / self.name / self.part if self.part else self.run / self.name

    @property
    def is_done(self) -> bool:
        """Whether the stage was finished."""
        return (self.folder / DONE).exists()

    @property
    def state(self) -> str:
        """``done``, ``begun`` or ``to do``."""
        return "done" if self.is_done else "begun" if (self.folder / STARTED).exists() else "to do"

    @property
    def facts(self) -> dict[str, Any]:
        """What the finished stage recorded."""
        facts: dict[str, Any] = self._record(DONE)["facts"]
        return facts

    @property
    def seconds(self) -> float:
        """How long the finished stage took, all sessions together."""
        return float(self._record(DONE)["seconds"])

    @property
    def identity(self) -> str:
        """A digest of the finished stage's inputs, those of earlier stages included."""
        return _digest(self._record(DONE)["inputs"])

    def _record(self, name: str) -> dict[str, Any]:
        try:
            record: dict[str, Any] = read_json(self.folder / name)
        except InputError as error:
            raise InputError(f"{error}; use --rerun {self.name} to do the stage again") from None
        return record

    def perform(
        self, inputs: dict[str, Any], work: Callable[[Path], dict[str, Any]], *, later: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Do the stage's ``work`` in its folder unless it is done with the same inputs; return its facts.

        Args:
            later: inputs that earlier versions did not record; where they are absent they count as the same.
        Raises:
            InputError: the stage was begun or finished with other inputs; the first that differs is named. One of
                ``work`` in a new stage leaves no trace.
        """
        inputs = json.loads(json.dumps(inputs, default=str))
        self._refuse_changes(inputs, later)
        is_new = not self.folder.exists()
        if self.is_done:
            say(f"{self.title}: done before")
            return self.facts
        if (self.folder / STARTED).exists():
            say(f"{self.title}: continues")
        else:
            write_json(self.folder / STARTED, {"inputs": inputs, "sessions": []})
        sessions = [*self._record(STARTED).get("sessions", []), _now()]
        write_json(self.folder / STARTED, {"inputs": inputs, "sessions": sessions})
        began = time.monotonic()
        facts, energy = self._metered(work, sessions[-1], is_new)
        seconds = round(facts.get("seconds", time.monotonic() - began), 1)
        record = {"inputs": inputs, "facts": facts, "seconds": seconds, "sessions": sessions, "finished": _now()}
        write_json(self.folder / DONE, {**record, "energy": energy})
        (self.folder / STARTED).unlink(missing_ok=True)
        energy_file(self.run, self.name, self.part).unlink(missing_ok=True)
        say(f"{self.title}: finished in {duration(seconds)}")
        return facts

    def _metered(
        self, work: Callable[[Path], dict[str, Any]], session: str, is_new: bool
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Do the work and account for its energy, with that of earlier sessions, also where it is interrupted."""
        path = energy_file(self.run, self.name, self.part)
        past = [] if is_new else energy_sessions(self.run, self.name, self.part)

        def sessions(facts: dict[str, Any]) -> dict[str, Any]:
            return {"sessions": [*past, {"started": session, **facts}]}

        def save(facts: dict[str, Any]) -> None:
            with contextlib.suppress(OSError, NotPossibleError):  # an account that is lost must not end the work
                write_json(path, sessions(facts))

        meter = Meter(gpus=self.gpus, save=save)
        try:
            with meter:
                facts = work(self.folder)
        except BaseException as error:
            if isinstance(error, InputError) and is_new:
                # Nothing came of it, and the corrected recipe must not be refused for being another one.
                shutil.rmtree(self.folder, ignore_errors=True)
                path.unlink(missing_ok=True)
            else:
                save(meter.facts)
            raise
        return facts, sessions(meter.facts)

    def _refuse_changes(self, inputs: dict[str, Any], later: Sequence[str]) -> None:
        """Compare with the inputs that the stage was finished or begun with, if it was."""
        if self.state == "to do":
            return
        record = DONE if self.is_done else STARTED
        before = _comparable(self._record(record)["inputs"], self.defaults, inputs)
        before |= {key: inputs[key] for key in later if key not in before}
        for key in [*inputs, *before]:
            if before.get(key) != inputs.get(key):
                name, old, new = _first_difference(key, before.get(key), inputs.get(key))
                state = "finished" if record == DONE else "begun"
                raise InputError(
                    f"{name}: is {new!r}, but {self.title} was {state} with {old!r} in {self.run}; "
                    f"nothing was changed; use --rerun {self.name} to do it (and what builds on it) again, "
                    f"or --run for another folder"
                )


def energy_file(run: Path, stage: str, part: str = "") -> Path:
    """Where a stage under way keeps account of its energy: beside its folder, which some stages replace as a whole."""
    return run / f".{stage}{'-' if part else ''}{part}.energy.json"


def energy_sessions(run: Path, stage: str, part: str = "") -> list[dict[str, Any]]:
    """Time and energy of the sessions of a stage under way; none where there is no account, or a damaged one."""
    with contextlib.suppress(InputError, OSError):
        account = read_json(energy_file(run, stage, part))
        sessions = account.get("sessions") if isinstance(account, dict) else None
        if isinstance(sessions, list):
            return [session for session in sessions if isinstance(session, dict)]
    return []


def record_of(run: Path, stage: str, part: str = "") -> dict[str, Any]:
    """What is recorded about a stage's time and energy: ``done.json``, or the sessions so far; empty where nothing is.

    A record that cannot be read counts as none: an account must not fail where the work did not.
    """
    with contextlib.suppress(InputError, OSError):
        record = read_json(run / stage / part / DONE)
        return record if isinstance(record, dict) else {}
    return {"energy": {"sessions": energy_sessions(run, stage, part)}}


def forget(run: Path, stage: str) -> None:
    """Delete a stage's folder and those of all later stages, so that they are done again.

    Raises:
        InputError: no such stage.
    """
    if stage not in STAGES:
        raise InputError(f"--rerun: no stage '{stage}'{nearest(stage, STAGES)}; stages: {', '.join(STAGES)}")
    for name in STAGES[STAGES.index(stage) :]:
        shutil.rmtree(run / name, ignore_errors=True)
        for account in run.glob(f".{name}*.energy.json"):
            account.unlink(missing_ok=True)


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold a run folder for one process; the lock goes with the process, however it ends.

    Raises:
        NotPossibleError: another process works in the folder.
    """
    try:
        run.mkdir(parents=True, exist_ok=True)
        stream = (run / ".lock").open("w")
    except OSError as error:
        raise disk_error(run, error) from error
    with stream:
        try:
            import fcntl

            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows: no advisory locks of this kind; two runs in one folder are the user's care
            pass
        except OSError:
            raise NotPossibleError(
                f"{run}: another fitformer process works in this folder; wait or use --run"
            ) from None
        yield


def _comparable(old: dict[str, Any], defaults: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The inputs of an older version as this one would have recorded them."""
    known = {key: _filled(value, defaults.get(key), new.get(key)) for key, value in old.items()}
    return known | {key: defaults[key] for key in new if key in defaults and key not in old}


def _filled(old: Any, defaults: Any, new: Any) -> Any:
    """A section with the defaults of settings that came later, and without settings that no longer count."""
    if not all(isinstance(value, dict) for value in (old, defaults, new)):
        return old
    counting = {key: value for key, value in old.items() if key in new or key not in defaults}
    known = {key: _filled(value, defaults.get(key), new.get(key)) for key, value in counting.items()}
    later = {key: defaults[key] for key in new if key in defaults and key not in old}
    return known | later


def _first_difference(name: str, old: Any, new: Any) -> tuple[str, Any, Any]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *new]:
            if old.get(key) != new.get(key):
                return _first_difference(f"{name}.{key}", old.get(key), new.get(key))
    return name, old, new


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
