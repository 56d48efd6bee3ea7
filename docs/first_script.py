"""A first script: open the demo, show a pair, export and train.

make demo && make train                       # once: a small dataset, and the packages that train
python docs/first_script.py
"""

import pairwright as pw

demo = pw.open("demo")
print(demo.status())
pairs = demo["pairs"].where("similarity > 0.5")
card = pairs[0].show()  # a notebook shows it, and `pairs` as a table with small pictures
card.save("pair.html")
tally = demo.export("trl", "demo-trl", split="train")
run = demo.train("sft", name="one-epoch", settings={"optimiser.num_train_epochs": 1})
print(f"{tally.rows} rows are in demo-trl, a model in {run.folder}, measured: {run.measured}")
