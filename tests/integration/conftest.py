"""Fixtures: a gateway shared by the tests that leave no trace, gateways of a test's own, and what each left in its log when a test failed."""
import contextlib
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import engine as e  # noqa: E402
import gateway as g  # noqa: E402
import walls  # noqa: E402

# Names of walls, comma-separated, to test these alone.
WANTED = os.environ.get("PLIMSOLL_TEST_WALLS")

def pytest_configure(config):
    config.addinivalue_line("markers", "faults: needs a build with fault points")
    config.addinivalue_line("markers", "one_wall: of something that is the same code for both local walls")
    if not hasattr(config, "workerinput"):
        # the workers' parent, or the only process: what the workers share ends with it
        config.engine_home = e.session_begin()


def pytest_unconfigure(config):
    e.session_end(getattr(config, "engine_home", None))


def pytest_generate_tests(metafunc):
    for fixture, several in (("wall", walls.WALLS), ("local_wall", walls.LOCAL_WALLS)):
        if fixture in metafunc.fixturenames:
            chosen = [w for w in several if WANTED is None or w.is_called(WANTED.split(","))]
            if metafunc.definition.get_closest_marker("one_wall"):
                chosen = chosen[:1]
            metafunc.parametrize(fixture, chosen, ids=repr, scope="module", indirect=True)


def pytest_collection_modifyitems(items):
    if g.DAEMON.exists() and not g.has_fault_points():
        skip = pytest.mark.skip(reason="this build has no fault points")
        for item in items:
            if item.get_closest_marker("faults"):
                item.add_marker(skip)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        arguments = getattr(item, "funcargs", {}).values()
        used = {getattr(v, "gw", v) for v in arguments if isinstance(getattr(v, "gw", v), g.Gateway)}
        for gw in g.running:
            if gw in used or not gw.is_shared:
                lines = [line[:400] for line in gw.log().splitlines()[-30:]]
                report.sections.append((f"log of {gw.home.name}", "\n".join(lines)))


def _shared(gw):
    gw.is_shared = True
    return g.served(gw)


@pytest.fixture(scope="session")
def gw():
    """The shared gateway: one token, no rate limit. Its tests must leave nothing behind."""
    with _shared(g.Gateway({"SANDBOX_MAX_CONCURRENT": "16"}).start()) as it:
        yield it


@pytest.fixture(scope="session")
def rated_gw():
    """A shared gateway with a rate nobody reaches, for the fields that speak of it."""
    with _shared(g.Gateway({"SANDBOX_RATE_PER_MIN": "6000", "SANDBOX_RATE_BURST": "3000"}).start()) as it:
        yield it


@pytest.fixture(scope="session")
def open_gw():
    """A shared gateway without authentication."""
    with _shared(g.Gateway({"PLIMSOLL_INSECURE": "1"}, auth=False).start()) as it:
        yield it


@pytest.fixture
def gateway():
    """Makes gateways of this test's own: gateway(SETTING="value", ...). Each is started, and must stop cleanly at the end."""
    with contextlib.ExitStack() as stack:
        def make(start=True, auth=True, state=None, **settings):
            gw = g.Gateway(settings, auth=auth, state=state)
            stack.enter_context(g.served(gw))
            return gw.start() if start else gw
        yield make


@pytest.fixture
def redis():
    server = g.Redis().start()
    yield server
    server.stop()


# -- walls by turns --


@pytest.fixture(scope="module")
def wall(request):
    """Every wall."""
    request.param.require()
    return request.param


@pytest.fixture(scope="module")
def local_wall(request):
    """Those of a local Docker Engine."""
    request.param.require()
    return request.param


@pytest.fixture(scope="session")
def all_walls():
    """One gateway with every wall of this machine that can be had. Its tests leave nothing in flight."""
    chosen = [w for w in walls.WALLS if w.shares_gateway and (WANTED is None or w.is_called(WANTED.split(","))) and w.can_be_had()]
    with _shared(g.Gateway(walls.settings_of(chosen))) as gw:
        yield gw.start()


@pytest.fixture(scope="session")
def gateway_of():
    """The gateway that a cloud's wall has to itself, started at its first use; looked over at the end with the service's own books."""
    with contextlib.ExitStack() as stack:
        made = {}

        def get(wall):
            if wall not in made:
                made[wall] = stack.enter_context(wall.gateway({"SANDBOX_MAX_CONCURRENT": "16"}))
                made[wall].is_shared = True
            return made[wall]
        yield get


@pytest.fixture
def at(request, wall):
    """A gateway shared by many tests, with every run pinned to the wall."""
    gw = request.getfixturevalue("all_walls") if wall.shares_gateway else request.getfixturevalue("gateway_of")(wall)
    yield walls.At(gw, wall)
    wall.look_over(gw)


@pytest.fixture
def on(all_walls, local_wall):
    return walls.At(all_walls, local_wall)


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left():
    """After each test file: no container of a gateway that is gone, no shim without a container."""
    yield
    if e.is_in_use():
        e.expect_nothing_left(e.shared())
