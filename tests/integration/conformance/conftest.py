"""Every wall by turns, all behind one gateway a worker; what each test file leaves is looked for when it ends."""
import os

import pytest

import engine as e
import gateway as g
import walls

# names of walls, comma-separated; all when it is not set
WANTED = os.environ.get("PLIMSOLL_TEST_WALLS")


def chosen():
    return [w for w in walls.WALLS if WANTED is None or w.name in WANTED.split(",")]


def pytest_generate_tests(metafunc):
    if "wall" in metafunc.fixturenames:
        metafunc.parametrize("wall", chosen(), ids=repr, scope="module", indirect=True)


@pytest.fixture(scope="module")
def wall(request):
    request.param.require()
    return request.param


@pytest.fixture(scope="session")
def all_walls():
    """One gateway with every wall that can be had here. Its tests leave nothing in flight."""
    gw = g.Gateway(walls.settings_of([w for w in chosen() if w.can_be_had()]))
    gw.is_shared = True
    with g.served(gw):
        yield gw.start()


@pytest.fixture
def at(all_walls, wall):
    return walls.At(all_walls, wall)


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left():
    yield
    if e.is_in_use():
        e.expect_nothing_left(e.shared())
