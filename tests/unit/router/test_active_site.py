"""Which site the router sends to, whatever the two say of themselves and in whatever order it is read."""

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from contracts.kernel.records import SiteRole
from infra.router.router import ActiveSite

Role = Literal["active", "passive"]
SITES = ("home", "away")
ROLES: tuple[Role, ...] = ("active", "passive")
READ = st.tuples(st.sampled_from(SITES), st.sampled_from(ROLES), st.integers(1, 6))


def test_a_planned_switchover_has_a_moment_without_an_active_site() -> None:
    active = ActiveSite()
    steps: list[tuple[str, Role, int, str | None, str | None]] = [
        ("away", "passive", 1, None, None),
        ("home", "active", 1, "home", "home"),
        ("home", "passive", 1, None, "home"),
        ("away", "active", 2, "away", "away"),
        ("home", "passive", 2, "away", "away"),
    ]
    for site, role, epoch, name, last in steps:
        active.learn(site, SiteRole(site, role, epoch))
        assert (active.name, active.last) == (name, last)


def test_a_lost_site_that_comes_back_as_active_is_not_chosen() -> None:
    active = ActiveSite()
    for site, epoch in [("home", 1), ("away", 2), ("home", 1)]:
        active.learn(site, SiteRole(site, "active", epoch))
    assert (active.name, active.epoch) == ("away", 2)
    active.learn("away", SiteRole("away", "passive", 2))
    assert active.name is None


@given(st.lists(READ, max_size=12))
def test_epochs_only_rise_and_the_chosen_site_is_active_in_the_newest(
    reads: list[tuple[str, Role, int]],
) -> None:
    active, newest, roles = ActiveSite(), 0, dict[str, tuple[str, int]]()
    for site, role, epoch in reads:
        active.learn(site, SiteRole(site, role, epoch))
        roles[site] = role, epoch
        newest = max([newest, *(own for kind, own in roles.values() if kind == "active")])
        assert active.epoch == newest
        writers = [name for name in SITES if roles.get(name) == ("active", newest)]
        assert active.name in writers if writers else active.name is None
        assert active.last == (active.name or active.last)
