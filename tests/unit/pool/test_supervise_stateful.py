"""Any order of crashes, ends, pauses and time gives what a plain model of the rules says."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.runtime.background import ChildStatus, Restart, State, Supervisor
from tests.support.background import Job, until

INTENSITY = 3
PERIOD_S = 60.0


class Clock:
    """Time that the rules move; every back-off is a future of its child's."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeping: list[asyncio.Future[None]] = []

    async def sleep(self, _: float) -> None:
        sleeper = asyncio.get_running_loop().create_future()
        self.sleeping.append(sleeper)
        try:
            await sleeper
        finally:
            self.sleeping.remove(sleeper)


@dataclass
class Expected:
    """What the rules say about one child."""

    restart: Restart
    job: Job = field(default_factory=Job)
    state: State = "running"
    restarts: int = 0
    runs: int = 1
    last_error: str | None = None
    ran_s: float = 0.0
    ends: list[float] = field(default_factory=list[float])

    def end(self, error: str | None) -> None:
        self.last_error = error or self.last_error
        if self.restart == "temporary" or (self.restart == "transient" and error is None):
            self.state = "failed" if error else "stopped"
            return
        self.ends = [end for end in self.ends if self.ran_s - end < PERIOD_S] + [self.ran_s]
        if len(self.ends) > INTENSITY:
            self.state = "failed"
            self.last_error = self.last_error or "it ended without an error, again and again"
        else:
            self.state = "restarting"


class SupervisorRules(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = Clock()
        self.closed = False
        self.expected: dict[str, Expected] = {}
        self.back_off: dict[str, asyncio.Future[None]] = {}
        self.supervisor = Supervisor(
            intensity=INTENSITY,
            period_s=PERIOD_S,
            clock=lambda: self.clock.now,
            sleep=self.clock.sleep,
        )
        self.loop.run_until_complete(self.supervisor.__aenter__())

    def in_state(self, *states: State) -> list[str]:
        return [name for name, child in self.expected.items() if child.state in states]

    def settle(self) -> None:
        """Let the loop run until the supervisor agrees with the model; fails when it never does."""
        expected = [
            ChildStatus(name, child.state, child.restarts, child.last_error)
            for name, child in self.expected.items()
        ]
        resting = len(self.in_state("restarting"))
        runs = [child.runs for child in self.expected.values()]

        def agree() -> bool:
            return (
                self.supervisor.children() == expected
                and len(self.clock.sleeping) == resting
                and [child.job.runs for child in self.expected.values()] == runs
            )

        self.loop.run_until_complete(until(agree))

    def note_back_off(self, name: str) -> None:
        if self.expected[name].state == "restarting":
            self.back_off[name] = self.clock.sleeping[-1]

    @precondition(lambda self: not self.closed and len(self.expected) < 5)
    @rule(restart=st.sampled_from(["permanent", "transient", "temporary"]))
    def add(self, restart: Restart) -> None:
        child = Expected(restart)
        name = f"child {len(self.expected)}"
        self.expected[name] = child
        self.add_to_supervisor(name, child)
        self.settle()

    def add_to_supervisor(self, name: str, child: Expected) -> None:
        async def add() -> None:
            self.supervisor.add(name, child.job, child.restart)

        self.loop.run_until_complete(add())

    @precondition(lambda self: self.in_state("running"))
    @rule(data=st.data(), kind=st.sampled_from(["crash", "lose", "finish"]))
    def end(self, data: Any, kind: str) -> None:
        name = data.draw(st.sampled_from(self.in_state("running")))
        child = self.expected[name]
        if kind == "crash":
            child.job.crash(ValueError(f"in run {child.runs}"))
            child.end(f"ValueError: in run {child.runs}")
        elif kind == "lose":
            child.job.lose()
            child.end("CancelledError")
        else:
            child.job.finish()
            child.end(None)
        self.settle()
        self.note_back_off(name)

    @precondition(lambda self: self.in_state("restarting"))
    @rule(data=st.data())
    def wake(self, data: Any) -> None:
        name = data.draw(st.sampled_from(self.in_state("restarting")))
        child = self.expected[name]
        child.state = "running"
        child.restarts += 1
        child.runs += 1
        self.back_off.pop(name).set_result(None)
        self.settle()

    @rule(seconds=st.sampled_from([1.0, 20.0, 59.0, 60.0, 1000.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        for name in self.in_state("running"):
            self.expected[name].ran_s += seconds

    @precondition(lambda self: not self.closed and self.expected)
    @rule(forget_it=st.booleans())
    def close(self, forget_it: bool) -> None:
        async def close() -> None:
            closing = asyncio.create_task(self.supervisor.aclose())
            if forget_it:
                await asyncio.sleep(0)
                closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)

        self.loop.run_until_complete(close())
        self.closed = True
        for name in self.in_state("running", "restarting"):
            self.expected[name].state = "stopped"
        self.settle()

    @invariant()
    def every_task_is_a_child_that_runs_or_rests(self) -> None:
        alive = len(self.in_state("running", "restarting"))
        assert len(asyncio.all_tasks(self.loop)) == alive

    @invariant()
    def no_child_runs_twice_or_when_it_should_not(self) -> None:
        for child in self.expected.values():
            assert child.job.running == (child.state == "running")

    def teardown(self) -> None:
        self.loop.run_until_complete(self.supervisor.aclose())
        assert asyncio.all_tasks(self.loop) == set()
        self.loop.close()


TestSupervisorRules = SupervisorRules.TestCase
TestSupervisorRules.settings = settings(max_examples=150, stateful_step_count=40)
