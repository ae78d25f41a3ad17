"""What an article is called."""

from infra.lab.retail.invoices import described
from tests.unit.retail.sheet import rows


def test_an_article_has_the_description_of_most_of_its_lines() -> None:
    names = described(
        rows(
            """
            1,85123A,WHITE HEART,6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom
            2,85123a,wrongly coded,-6,2010-12-02 08:26:00,0.0,,United Kingdom
            3,85123A,WHITE HEART,1,2010-12-03 08:26:00,2.55,,France
            3,22423,TWO,1,2010-12-03 08:26:00,2.55,,France
            4,22423,ONE,1,2010-12-03 08:26:00,2.55,,France
            4,20000,,1,2010-12-03 08:26:00,2.55,,France
            """
        )
    )
    assert names == {"22423": "ONE", "85123A": "WHITE HEART"}
