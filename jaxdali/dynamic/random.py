"""Random operators of `jaxdali.fn.random` as functions of values, and their keys.

One key draws one number, as in `jax.random`; ``batch_size=n``, or an array or list of n keys, draws n. A function of N
samples that draws by itself, such as `random_resized_crop`, draws for each of them: sample i uses
``jax.random.fold_in(key, i)``, or its own key. The numbers are the same with and without `jit`, and inside `jax.jit`.

What one key draws is a single value, and so is what is made of it by arithmetic, subscripts and functions. A batch of
several samples does not take it, as an argument or otherwise: `broadcast` makes it the same for all. ``float(x)``,
``np.asarray(x)`` and ``x.jax()`` give ordinary numbers and arrays.
"""

from typing import TYPE_CHECKING, Any

from ._functions import broadcast as broadcast
from ._keys import RNG as RNG
from ._keys import fold_in as fold_in
from ._keys import split as split

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The operators; `_functions` puts them here."""
        ...
