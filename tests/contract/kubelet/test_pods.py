"""What any node promises to pods, asked of a real kubelet: the tests of `process` nodes."""

import pytest

from tests.contract.node import test_pods as promised

pytestmark = [pytest.mark.kubelet, pytest.mark.stack, pytest.mark.slow]
globals().update({name: it for name, it in vars(promised).items() if name.startswith("test_")})
