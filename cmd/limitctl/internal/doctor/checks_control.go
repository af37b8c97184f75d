package doctor

import (
	"strings"

	"github.com/routelimit/limit/internal/redisfacts"
)

// Bans, overrides and pushed policies: package control.

func controlDocuments(f *RedisFacts) result {
	c := &f.Control
	var parts, wrong []string
	for _, k := range c.Kinds {
		for _, name := range k.Wrong {
			wrong = append(wrong, quote(name))
		}
		part := k.Name
		if k.Name == "policy" {
			part += " (pushed policies)"
		}
		parts = append(parts, part+": "+plural(int(k.Documents), "document")+", "+size(k.Size)+", version "+quote(k.Version))
	}
	if len(c.Unknown) > 0 {
		parts = append(parts, plural(len(c.Unknown), "key")+" that this limitctl does not know, such as "+quote(c.Unknown[0]))
	}
	list := strings.Join(parts, "; ")
	switch {
	case wrong != nil:
		return Fail.because("keys of another type: %s", strings.Join(wrong, ", ")).
			change("find out what else writes under this prefix, and remove what it wrote: the instances write the documents that they know back")
	case c.Err != "":
		return skipped("%s", c.Err)
	case list == "":
		return ok("no bans, overrides or pushed policies under %s", quote(f.Prefix))
	}
	return ok("%s. Do not delete their keys, which do not expire", list)
}

func controlPermissions(f *RedisFacts) result {
	c := &f.Control
	switch {
	case c.Rights == nil:
		return result{}
	case c.Rights.Err != nil:
		return skipped("EVAL: %s", c.Rights.Err.Error())
	}
	user, name := "this user", "<user>"
	if c.User != "" {
		user = "user " + quote(c.User)
		if plainName(c.User) {
			name = c.User
		}
	}
	if len(c.Rights.Refused()) == 0 {
		return ok("%s may run all that bans, overrides and pushed policies need", user)
	}
	r := Fail.because("%s may not run %s: bans, overrides and pushed policies do not work", user, strings.Join(c.Rights.Explain(), ", ")).
		change(complete(f, redisfacts.GrantControl(name, f.Prefix), c.Addr))
	if f.Cluster {
		r = r.change("grant it on every node of the Cluster")
	}
	return r
}
