namespace Quantra.Client.Managed;

/// <summary>A member of an ensemble, as its manifest lists it.</summary>
/// <param name="Name">Its name, which is that of its folder.</param>
/// <param name="ManifestHash">SHA-256 of its manifest.</param>
internal sealed record EnsembleMember(string Name, string ManifestHash)
{
    private const int MostMembers = 32;

    /// <summary>Reads the members of an ensemble's manifest.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: there are none or too many, or a name is invalid or not unique.</exception>
    public static EnsembleMember[] ReadAll(JsonRecord manifest)
    {
        var entries = manifest.Records("members");
        if (entries.Length is < 1 or > MostMembers)
            throw manifest.Refusal("members", $"has {entries.Length} entries, but an ensemble has 1 to {MostMembers} members");
        var members = new EnsembleMember[entries.Length];
        for (var index = 0; index < members.Length; index++)
        {
            var (entry, name) = (entries[index], entries[index].Text("name"));
            if (!ModelName.IsValid(name))
                throw entry.Refusal("name", $"is {PythonText.Quote(name)}, but must have 1 to 64 letters, digits, dots, dashes and underscores");
            if (members.Take(index).Any(member => member.Name == name))
                throw entry.Refusal("name", $"is {PythonText.Quote(name)}, the name of an earlier member");
            members[index] = new(name, entry.Text("manifest_sha256"));
            entry.End();
        }

        return members;
    }
}
