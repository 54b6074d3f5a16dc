"""Judge drift: a frozen set of answers, judged again, tells the judge's changes from the application's."""
