"""Parts of HTML pages: drawings, contact sheets, templates."""
