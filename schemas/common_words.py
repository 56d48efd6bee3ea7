"""Name words that descriptions of pictures are made of (ours): what wrong words are drawn from."""

_WORDS = """
man woman boy girl child baby person people crowd player worker driver rider dog cat horse cow sheep bird elephant
bear zebra giraffe fish car truck bus train bicycle motorcycle boat ship plane street road bridge tower house
building window door wall roof fence gate room kitchen bathroom bedroom office chair table desk bed sofa couch lamp
shelf mirror clock picture curtain carpet floor ceiling tree flower grass leaf bush branch plant garden forest field
hill mountain river lake sea beach sand snow ice rock stone sky cloud sun moon rain bag box bottle bowl cup glass
plate spoon fork knife pot basket book paper pen phone camera computer keyboard screen toy ball bat kite racket
shirt jacket coat dress skirt trousers hat cap helmet shoe boot scarf tie glove glasses umbrella watch ring apple
banana orange bread cake pizza sandwich cheese meat egg salad soup coffee tea water milk juice wine hand arm leg
foot head face eye hair tail wing wheel handle button sign flag pole bench statue fountain red blue green yellow
black white brown grey purple pink golden silver bright dark light colourful striped spotted plain big small large
little tall short long narrow wide thick thin round square flat heavy old new young clean dirty wet dry wooden metal
plastic woollen broken empty full open closed hot cold soft hard smooth rough one two three four five six seven
eight nine ten several many few both another standing sitting lying walking running riding driving flying swimming
jumping climbing holding carrying wearing eating drinking looking watching reading writing playing throwing catching
kicking hitting pulling pushing opening closing cutting cooking cleaning smiling laughing talking sleeping waiting
working resting hanging leaning crossing turning moving growing falling shining stands sits lies walks runs rides
holds carries wears eats drinks looks plays throws shows has contains covers above below under over behind beside
between near inside outside across along around through against beneath toward left right top bottom front back
middle corner edge side centre background foreground distance with without on in at by from to of for into onto and
or but while next very quite almost only just also still slowly quickly quietly together alone again now then here
there morning evening night summer winter party market station airport stadium school church shop restaurant museum
zoo farm harbour
"""
COMMON_WORDS = tuple(_WORDS.split())
