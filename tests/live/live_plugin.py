"""What makes the conformance suite one against a real service: the wall is given the service in place of a stand-in, the rest is left out, and the session
ends when the cap is reached. Loaded by live.py, which sets LIVE_BACKEND and the caps."""
import os
import time

import pytest
import selection
import services
import walls

CAP_REACHED = 3


class Live:
    def __init__(self):
        self.service = services.SERVICES[os.environ["LIVE_BACKEND"]]()
        self.max_usd, self.max_seconds = float(os.environ["LIVE_MAX_USD"]), float(os.environ["LIVE_MAX_SECONDS"])
        self.began = time.monotonic()
        self.stopped = None
        wall = self.wall = next(w for w in walls.CLOUD_WALLS if repr(w) == os.environ["PLIMSOLL_TEST_WALLS"])
        wall.service = self.service
        wall.settings_for = lambda cloud: self.service.settings
        # those of a network and of somebody else's machines
        wall.hasty, wall.starts_s, wall.gone_s, wall.late_s, wall.recovery_s, wall.adopted_s = {}, 5, 20, 12, 180, 240
        wall.environment, wall.software = ".*", ".*"
        services.g.START_S = 180    # a trial of the wall comes before a gateway listens

    def why_over(self):
        if self.service.usd() > self.max_usd:
            return f"LIVE_MAX_USD reached: {self.service.usd():.4f} of {self.max_usd}"
        if self.service.seconds() > self.max_seconds:
            return f"LIVE_MAX_SECONDS reached: {self.service.seconds():.0f} s of sandboxes"
        if time.monotonic() - self.began > self.max_seconds:
            return f"LIVE_MAX_SECONDS reached by the clock: {self.max_seconds:.0f} s"
        return None

    def pytest_collection_modifyitems(self, config, items):
        run, others = selection.chosen(items)
        config.hook.pytest_deselected(items=others)
        items[:] = run

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item):
        self.service.learn()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item):
        self.service.learn()
        unknown = [gw for gw in services.g.running if gw.home not in self.service.installations]
        if unknown:
            pytest.exit("the gateway's sandboxes could not be told from others: nothing further is made", returncode=1)

    def pytest_runtest_logfinish(self):
        self.stopped = self.stopped or self.why_over()

    def pytest_runtest_protocol(self, item):
        if self.stopped:
            pytest.exit(self.stopped, returncode=CAP_REACHED)

    def pytest_sessionfinish(self, session):
        text = f"\n{self.service.name}: about {self.service.seconds():.0f} s of sandboxes"
        print(text + (f", at most {self.service.usd():.4f} USD" if self.service.is_billed else ", unbilled"))
        left = self.service.expect_none()
        if left:
            print(f"LEFT BEHIND, and deleted now: {left}")
            session.exitstatus = 1
        else:
            print("the account lists nothing of ours")


def pytest_configure(config):
    config.pluginmanager.register(Live(), "live")
