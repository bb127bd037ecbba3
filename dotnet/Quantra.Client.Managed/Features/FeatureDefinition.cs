namespace Quantra.Client.Managed;

/// <summary>The definition of one feature.</summary>
/// <param name="Name">Letters, digits and underscores.</param>
/// <param name="Expression">Its canonical expression.</param>
/// <param name="Meaning">The meaning in words.</param>
/// <param name="Unit">The unit of its values.</param>
internal sealed record FeatureDefinition(string Name, string Expression, string Meaning, string Unit)
{
    private const int LongestName = 64;

    /// <summary>Reads a definition of features.json.</summary>
    public static FeatureDefinition Read(JsonRecord entry)
    {
        var definition = new FeatureDefinition(entry.Text("name"), entry.Text("expression"), entry.Text("meaning"), entry.Text("unit"));
        entry.End();
        var name = definition.Name;
        if (name.Length is 0 or > LongestName || !char.IsAsciiLetter(name[0]) || !name.All(one => char.IsAsciiLetterOrDigit(one) || one == '_'))
            throw entry.Refusal("name", $"must have 1 to {LongestName} letters, digits and underscores, and start with a letter");
        return definition;
    }

    /// <summary>Parses the expression, which must be written in its canonical form.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID</exception>
    public Expression Parse(IReadOnlyCollection<string> fields)
    {
        try
        {
            var tree = ExpressionParser.Parse(Expression, fields);
            return tree.ToString() == Expression
                ? tree
                : throw ArtifactError.Of(ArtifactFiles.FeaturesFile, $"the expression of {Name} must be written as {tree}");
        }
        catch (QuantraException problem) when (problem.Reason == QuantraReason.ExpressionInvalid)
        {
            throw ArtifactError.Of(ArtifactFiles.FeaturesFile, $"feature {Name}: {problem.Message}", problem);
        }
    }
}

/// <summary>Names of the covariates that features read.</summary>
/// <param name="Observed">Covariates of observed features, as known at the close of each session.</param>
/// <param name="Known">Covariates of known features, of future sessions too.</param>
internal sealed record CovariateFields(string[] Observed, string[] Known)
{
    private const int MostCovariates = 500;

    /// <summary>Reads the names of features.json.</summary>
    public static CovariateFields Read(JsonRecord record)
    {
        var fields = new CovariateFields(record.Texts("observed"), record.Texts("known"));
        record.End();
        if (fields.Observed.Length + fields.Known.Length > MostCovariates)
            throw record.Refusal("observed", $"and known are more than {MostCovariates} covariates");
        HashSet<string> taken = [.. FieldFormulas.Observed, .. FieldFormulas.Known];
        foreach (var name in fields.Observed.Concat(fields.Known))
        {
            if (!IsName(name))
                throw record.Refusal("observed", $"or known names '{name}', which is not 1 to 64 lower-case letters, digits and underscores");
            if (!taken.Add(name))
                throw record.Refusal("observed", $"or known names {name}, which is the name of another column");
        }
        return fields;
    }

    /// <summary>Whether expressions can refer to a name.</summary>
    public static bool IsName(string name) =>
        name.Length is > 0 and <= 64 && char.IsAsciiLetterLower(name[0])
        && name.All(one => char.IsAsciiLetterLower(one) || char.IsAsciiDigit(one) || one == '_');
}
