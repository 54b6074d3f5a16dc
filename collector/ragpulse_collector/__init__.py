"""The local collector: one process that receives, stores, samples, evaluates and measures.

    receive → decode → store ─┬─▶ sample → evaluate ─▶ scores
                              └─▶ measure (metrics, monitors, replay) ─▶ api, pages, CLI

`app` joins the parts; every other module is handed what comes next.
"""
