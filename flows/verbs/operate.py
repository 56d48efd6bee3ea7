"""The verbs that keep a dataset up to date: publish."""

from flows.verbs.options import Dataset, app


@app.command(epilog="Example: `pairwright publish dataset`")
def publish(dataset: Dataset) -> None:
    """Publish what a dataset holds as its newest version although its profile's gates held the build back."""
    from flows.publish_version import publish_anyway
    from tasks.store.files import Folder

    snapshot, verdict = publish_anyway(Folder(dataset))
    for gate in verdict.failed:
        print(f"Passed over: {gate.say()}")
    print(f"Version {snapshot.number} of {dataset} is current. It is what export, report and training read.")
