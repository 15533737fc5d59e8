//! The budgets of control paths hold with some thousand invented files.

use firn_sim::scale::{ScalePlan, costs};

#[test]
fn control_paths_do_not_visit_all_files_or_tables() {
    let costs = costs(ScalePlan::SMALL, None);
    let over = costs.over_budget();
    assert!(over.is_empty(), "over budget: {over:#?}");
    // Without these the test would measure something else.
    for what in [
        "a commit that freezes",
        "install a job",
        "pick below L0",
        "estimate of a range",
        "rows per key",
    ] {
        assert!(costs.all.iter().any(|one| one.what == what), "no {what}");
    }
}
