use super::*;
use crate::version::testing::file;

#[test]
fn a_run_is_charged_up_to_a_limit_with_its_ratio_of_stored_bytes() {
    let meta = |file_id, raw_bytes, size| FileMeta {
        raw_bytes,
        size,
        ..file(file_id, b"a", b"b")
    };
    let charge = |files: &[FileMeta]| {
        let charge = RunCharge::of(files.iter());
        (charge.bytes, charge.stored_bytes)
    };
    assert_eq!(charge(&[]), (0, 0));
    let few = [meta(1, 1000, 400), meta(2, 500, 200)];
    assert_eq!(charge(&few), (1500, 600));
    assert_eq!(Changes::Run(few.to_vec()).charged_bytes(), 1500);
    let many = [meta(1, 100 << 30, 40 << 30)];
    let part = (RUN_CHARGE_MAX, RUN_CHARGE_MAX * 40 / 100);
    assert_eq!(charge(&many), part);
}
