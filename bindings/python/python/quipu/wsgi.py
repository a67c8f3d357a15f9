"""The WSGI application: ``gunicorn`` and others serve it, or a framework mounts it."""

from .exposition import make_wsgi_app

__all__ = ["make_wsgi_app"]
