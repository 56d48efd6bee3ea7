"""Write README.md of an export: what it is, how its reader is started, what it does not hold, where it is from."""

from pairwright.tasks.export.form import Form, plain_name
from pairwright.tasks.export.tally_rows import About, Tally
from pairwright.tasks.export.write_card import front_matter, markdown


def write_readme(form: Form, about: About, tally: Tally) -> str:
    """Return the text of README.md: the form's own, or the common one."""
    if form.card:
        return form.card(about, tally)
    use = form.use.replace("NAME", plain_name(about.name)).strip()
    front = front_matter(about, tally)
    return markdown().get_template("readme.md.j2").render(form=form, about=about, tally=tally, use=use, front=front)
