"""Who opens a GPU context next: few in turn, in the order of asking, and behind those who are first."""

from __future__ import annotations

import threading
import time

from harness.door import Door

SOON_S = 30.0
STILL_S = 0.2
"""How long is looked whether somebody enters who must not."""


class Audit(threading.Thread):
    """One that enters as soon as it may and stays until it is told to leave; `order` notes who entered."""

    def __init__(self, door: Door, name: str, order: list[str]) -> None:
        super().__init__(name=name, daemon=True)
        self._door, self._order = door, order
        self.given_up = self.still = False
        self.entered: bool | None = None
        self.looked, self.leaves = threading.Event(), threading.Event()
        self.start()
        time.sleep(0.02)  # so that the next one asks after it

    def run(self) -> None:
        with self._door.in_turn(lambda: self.given_up, lambda: self.still) as self.entered:
            self._order.append(self.name)
            self.looked.set()
            self.leaves.wait(SOON_S)

    def is_in(self) -> bool:
        assert self.looked.wait(SOON_S)
        return bool(self.entered)

    def leave(self) -> None:
        self.leaves.set()
        self.join(SOON_S)


def waits(audit: Audit) -> bool:
    return not audit.looked.wait(STILL_S)


def test_few_at_a_time_in_the_order_of_asking() -> None:
    door, order = Door(places=2), []
    audits = [Audit(door, str(number), order) for number in range(5)]
    assert audits[0].is_in()
    assert audits[1].is_in()
    assert all(waits(audit) for audit in audits[2:])
    for leaving, coming in ((0, 2), (2, 3), (1, 4)):
        audits[leaving].leave()
        assert audits[coming].is_in()
    assert order == ["0", "1", "2", "3", "4"]
    for audit in audits:
        audit.leave()


def test_nobody_enters_in_turn_while_somebody_is_first() -> None:
    door, order = Door(places=2), []
    inside = Audit(door, "inside", order)
    assert inside.is_in()
    with door.first(), door.first():
        late = Audit(door, "late", order)
        assert waits(late)
    assert late.is_in()
    inside.leave()
    late.leave()


def test_one_that_stands_still_lets_others_pass() -> None:
    """Whoever holds it may wait for the line to come to its end."""
    door, still = Door(places=1), threading.Event()
    with door.first(still.is_set):
        audit = Audit(door, "audit", [])
        assert waits(audit)
        still.set()
        door.look_again()
        assert audit.is_in()
    audit.leave()


def test_one_that_is_given_up_leaves_the_line() -> None:
    door, order = Door(places=1), []
    inside, gone, next_one = (Audit(door, name, order) for name in ("inside", "gone", "next"))
    assert inside.is_in()
    gone.given_up = True
    door.look_again()
    assert not gone.is_in()
    gone.leave()
    assert waits(next_one)
    inside.leave()
    assert next_one.is_in()
    next_one.leave()


def test_nobody_enters_while_it_is_to_be_still() -> None:
    """A process would be forked for it while something is timed."""
    door, order = Door(places=1), []
    inside, audit = Audit(door, "inside", order), Audit(door, "audit", order)
    assert inside.is_in()
    audit.still = True
    inside.leave()
    assert waits(audit)
    audit.still = False
    door.look_again()
    assert audit.is_in()
    audit.leave()
