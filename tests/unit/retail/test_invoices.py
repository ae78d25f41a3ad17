"""Each kind of invoice, from a few literal lines."""

from datetime import UTC, datetime

from infra.lab.retail.invoices import CreditNote, Reason, Unmapped
from infra.lab.retail.steps import Adjust, InvoiceCharge, InvoiceLine, Place
from tests.unit.retail.sheet import read

AT = datetime(2010, 12, 1, 9, 0, tzinfo=UTC)


def test_an_ordinary_invoice_is_a_sale_with_its_charges_apart() -> None:
    [sale] = read("""
        536370,22728,ALARM CLOCK,24,2010-12-01 09:00:00,3.75,12583.0,France
        536370,22728,ALARM CLOCK,2,2010-12-01 09:01:00,3.95,12583.0,France
        536370,POST,POSTAGE,3,2010-12-01 09:01:00,18.0,12583.0,France
    """)
    assert sale == Place(
        at=AT,
        order_id="536370",
        customer_id="12583",
        country="France",
        lines=(InvoiceLine("22728", 24, 3_750_000), InvoiceLine("22728", 2, 3_950_000)),
        charges=(InvoiceCharge("POST", 54_000_000),),
    )


def test_a_credit_note_loses_its_charges_and_says_so() -> None:
    assert read("""
        C536379,D,Discount,-1,2010-12-01 09:00:00,27.5,14527.0,United Kingdom
        C536379,22556,PLASTERS,-12,2010-12-01 09:00:00,1.65,14527.0,United Kingdom
    """) == [
        Unmapped(Reason.CHARGE_CREDITED, "C536379", AT, 1, -27_500_000),
        CreditNote("C536379", AT, "14527", (InvoiceLine("22556", 12, 1_650_000),)),
    ]


def test_without_customer_and_price_it_is_a_count() -> None:
    assert read("""
        536589,21777,,-10,2010-12-01 09:00:00,0.0,,United Kingdom
        536590,21778,Found,4,2010-12-01 09:00:00,0.0,,United Kingdom
        536590,21779,,5,2010-12-01 09:00:00,0.0,,United Kingdom
    """) == [
        Adjust(AT, "21777", -10, "536589", "written off"),
        Adjust(AT, "21778", 4, "536590", "Found"),
        Adjust(AT, "21779", 5, "536590-2", "found"),
    ]


def test_a_gift_to_a_customer_is_a_sale_for_nothing() -> None:
    [sale] = read("543599,84535B,NOTEBOOK,16,2010-12-01 09:00:00,0.0,17560.0,United Kingdom")
    assert isinstance(sale, Place)
    assert sale.lines == (InvoiceLine("84535B", 16, 0),)


def test_what_has_no_command_is_counted_with_its_reason_and_value() -> None:
    assert read("""
        A563186,B,Adjust bad debt,1,2010-12-01 09:00:00,-11062.06,,United Kingdom
        537632,AMAZONFEE,AMAZON FEE,1,2010-12-01 09:00:00,13541.33,,United Kingdom
        538000,gift_0001_20,Voucher,1,2010-12-01 09:00:00,16.67,,United Kingdom
        C538686,22467,COAT RACK,-1,2010-12-01 09:00:00,2.55,,United Kingdom
        540000,S,SAMPLES,1,2010-12-01 09:00:00,0.0,,United Kingdom
    """) == [
        Unmapped(Reason.BAD_DEBT, "A563186", AT, 1, -11_062_060_000),
        Unmapped(Reason.NO_GOODS, "537632", AT, 1, 13_541_330_000),
        Unmapped(Reason.NO_GOODS, "538000", AT, 1, 16_670_000),
        Unmapped(Reason.GUEST_CREDIT, "C538686", AT, 1, -2_550_000),
        Unmapped(Reason.CHARGE_COUNTED, "540000", AT, 1, 0),
    ]
