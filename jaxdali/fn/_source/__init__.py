"""Data from Python: the operator `external_source`.

`external_source.py` has the operator, `external_sources.py` its sources (pulled from a function or fed), `pull.py` the
items of one shard, `copies.py` and `workers.py` what `parallel=True` needs, and `external_data.py` the conversion of
users' data. `readers.source`, for data sets with items by number, is in `fn/readers/_source.py`.
"""
