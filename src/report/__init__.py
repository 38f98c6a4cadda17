"""The report: tables, figures and one page, from the records of finished runs alone."""
