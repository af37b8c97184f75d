package livepage

// The state, as JSON. docs/design/live-page.md has the units of times.
type (
	state struct {
		At          int64            `json:"at"`
		Instance    string           `json:"instance"`
		Since       int64            `json:"since"`
		Unavailable bool             `json:"unavailable"`
		Outage      outage           `json:"outage"`
		Waiters     int64            `json:"waiters"`
		Reserved    int64            `json:"reserved"`
		Settled     int64            `json:"settled"`
		Forgiven    int64            `json:"forgiven"`
		Viewers     int64            `json:"viewers"`
		Seconds     seconds          `json:"seconds"`
		Now         rates            `json:"now"`
		Modes       []period         `json:"modes"`
		ModeCounts  map[string]int64 `json:"mode_counts"`
		Policies    policies         `json:"policies"`
		Keys        []keyRow         `json:"keys"`
		Refusals    []refusalRow     `json:"refusals"`
		Bans        []ban            `json:"bans"`
		BansTotal   int              `json:"bans_total"`
		Overrides   []override       `json:"overrides"`
		Overridden  int              `json:"overrides_total"`
	}
	outage struct { // the latest one
		Since   int64 `json:"since"` // see core.Condition; 0 means never
		Until   int64 `json:"until"`
		Owed    int64 `json:"owed"`
		Lost    int64 `json:"lost"`
		Doubted int64 `json:"doubted"`
	}
	seconds struct {
		From     int64    `json:"from"`
		Admitted []uint64 `json:"admitted"`
		Refused  []uint64 `json:"refused"`
	}
	rates struct {
		Admitted float64 `json:"admitted_per_second"`
		Refused  float64 `json:"refused_per_second"`
	}
	period struct {
		Mode string `json:"mode"`
		From int64  `json:"from"`
		To   int64  `json:"to"`
	}
	policies struct {
		Total    int         `json:"total"`
		Matching int         `json:"matching"`
		Offset   int         `json:"offset"`
		Next     int         `json:"next"`     // offset of the rows after these; 0 if there are none
		Unlisted int64       `json:"unlisted"` // requests on policies beyond maxPolicies
		Rows     []policyRow `json:"rows"`
	}
	policyRow struct {
		Name      string      `json:"name"`
		Admitted  int64       `json:"admitted"`
		Refused   int64       `json:"refused"`
		GivenBack int64       `json:"given_back,omitempty"` // of Admitted
		Idle      int         `json:"idle,omitempty"`       // routes without a request yet, which Name has the rules of
		Full      float32     `json:"full"`
		Spark     [][2]uint32 `json:"spark"`
		Rules     []ruleRow   `json:"rules"`
	}
	ruleRow struct {
		Name     string  `json:"name"`
		Text     string  `json:"text"`
		Admitted int64   `json:"admitted"`
		Refused  int64   `json:"refused"`
		Full     float32 `json:"full"`
		Shadow   bool    `json:"shadow"`
		Keyed    bool    `json:"keyed"`
		Kind     string  `json:"kind"`
	}
	keyRow struct {
		Policy    string   `json:"policy"`
		Rule      string   `json:"rule"`
		Key       string   `json:"key,omitempty"`
		ID        string   `json:"id,omitempty"`
		Kind      string   `json:"kind"`
		Per       string   `json:"per"` // what the key is of: "ip", "header X-Api-Key"
		Requests  int64    `json:"requests"`
		Refused   int64    `json:"refused"`
		Used      float64  `json:"used"`
		Remaining int64    `json:"remaining"`
		Capacity  int64    `json:"capacity"`
		Last      int64    `json:"last"`
		More      []ruleOf `json:"more,omitempty"` // other rules with the key, the first of them
	}
	ruleOf struct {
		Policy string `json:"policy"`
		Rule   string `json:"rule"`
	}
	refusalRow struct {
		Number  int64        `json:"n"`
		At      int64        `json:"at"`
		Policy  string       `json:"policy"`
		Outcome string       `json:"outcome"`
		Mode    string       `json:"mode"`
		Rules   []refusedKey `json:"rules"`
		Words   string       `json:"words"`
	}
	refusedKey struct {
		Name string `json:"name"`
		Key  string `json:"key,omitempty"`
		ID   string `json:"id,omitempty"`
	}
	ban struct { // by hand with an Entry, or by a rule with a Key
		Entry  string `json:"entry,omitempty"`
		Policy string `json:"policy,omitempty"`
		Rule   string `json:"rule,omitempty"`
		Key    string `json:"key,omitempty"`
		ID     string `json:"id,omitempty"` // of the Entry or the Key
		Until  int64  `json:"until"`
		By     string `json:"by"`
		Reason string `json:"reason"`
	}
	override struct {
		Policy  string `json:"policy"`
		Rule    string `json:"rule"`
		Key     string `json:"key,omitempty"`
		ID      string `json:"id,omitempty"`
		Pattern bool   `json:"pattern,omitempty"` // whether the Key is one
		Limit   int64  `json:"limit"`
		Until   int64  `json:"until"`
		By      string `json:"by"`
		Reason  string `json:"reason"`
	}
)
