"""The adapter to Flower, the distributed engine; nothing else in the package imports it.

Flower carries bytes between the server and the sites. State, identity, resuming and accounting
are those of :mod:`torch_dpfts`. Install it with the extra ``flower``.
"""
