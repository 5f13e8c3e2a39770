"""The gateway: HTTP in, upstream out, capture. An answered call is a captured call.

`python -m gateway` serves it; `app.create_app` builds it from its edges.
"""
