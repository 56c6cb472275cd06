"""The pages of the service: each is a file with its routes, and a template. One style sheet and little script.

Everything a page needs is served from this package. There is no script and no style within a page, so that the policy
that forbids both holds.
"""

from haybale.service.pages.routes import error_page, pages

__all__ = ["error_page", "pages"]
