"""Reports: one page of HTML about a campaign or a study, with all that it needs inside.

`page` puts a page together, `figures` and `tables` say what stands on it; `runs` reads the results
of a study, `study` and `campaign` say what each of the two pages shows.
"""
