"""Reports: a self-contained page of HTML about a campaign or a study.

`page` assembles a page of `figures` and `tables`; `campaign` and `study` define the two pages.
`model` draws the surrogate of a campaign, `runs` reads the results of a study, and `paired`
compares its methods.
"""
