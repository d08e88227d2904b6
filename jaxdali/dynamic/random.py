"""Random operators of `jaxdali.fn.random` as functions of values, and their keys.

One key draws one number, as in `jax.random`; ``batch_size=n``, or an array or list of n keys, draws n. A function of N
samples that draws by itself, such as `random_resized_crop`, draws for each of them: sample i uses
``jax.random.fold_in(key, i)``, or its own key. The numbers are the same with and without `jit`, and inside `jax.jit`.

One key draws a single value, and arithmetic, subscripts and functions of it give single values again. It can't be used
with a batch of several samples, as an argument or otherwise, unless `broadcast` makes it the same for all of them.
``float(x)``, ``np.asarray(x)`` and ``x.jax()`` give ordinary numbers and arrays.
"""

from typing import TYPE_CHECKING, Any

from ._functions import broadcast as broadcast
from ._keys import RNG as RNG
from ._keys import fold_in as fold_in
from ._keys import split as split

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The operators. `_functions` adds them to this module."""
        ...
