using Microsoft.Extensions.Options;

namespace Quantra.Client.Hosting.Servers;

/// <summary>Checks the options of a server.</summary>
internal sealed class QuantraServerValidation : IValidateOptions<QuantraServerOptions>
{
    /// <inheritdoc/>
    public ValidateOptionsResult Validate(string? name, QuantraServerOptions options)
    {
        var server = string.IsNullOrEmpty(name) ? "the server without a name" : $"server '{name}'";
        var problems = ServerCommand.Problems(options).Select(problem => $"{server}: {problem}").ToArray();
        return problems.Length == 0 ? ValidateOptionsResult.Success : ValidateOptionsResult.Fail(problems);
    }
}
