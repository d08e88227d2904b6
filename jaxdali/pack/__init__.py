"""``python -m jaxdali.pack``: writes any reader's records as shards of WebDataset, TFRecord or ArrayRecord files."""
