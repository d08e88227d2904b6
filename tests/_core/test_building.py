"""What is said at the user's line."""

import re
import warnings

from jaxdali import Pipeline


def test_warnings_are_those_of_the_users_module_and_come_once_from_a_line():
    """As Python's: it shows those of deprecations in ``__main__`` alone."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", category=DeprecationWarning, module=re.escape(__name__) + "$")
        for _ in range(2):
            Pipeline(batch_size=1, experimental_exec_dynamic=True)
    assert [(w.filename, w.category) for w in seen] == [(__file__, DeprecationWarning)]
