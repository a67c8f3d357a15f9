"""The WSGI application, for ``gunicorn`` and other servers, or to mount in a framework."""

from .exposition import make_wsgi_app

__all__ = ["make_wsgi_app"]
