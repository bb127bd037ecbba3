using Microsoft.Extensions.Options;

namespace Quantra.Client.Hosting.Servers;

/// <summary>Validates server options.</summary>
internal sealed class QuantraServerValidation : IValidateOptions<QuantraServerOptions>
{
    /// <inheritdoc/>
    public ValidateOptionsResult Validate(string? name, QuantraServerOptions options)
    {
        var server = string.IsNullOrEmpty(name) ? "the unnamed server" : $"server '{name}'";
        var problems = ServerCommand.Validate(options).Select(problem => $"{server}: {problem}").ToArray();
        return problems.Length == 0 ? ValidateOptionsResult.Success : ValidateOptionsResult.Fail(problems);
    }
}
